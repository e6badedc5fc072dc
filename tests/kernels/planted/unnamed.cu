// SPDX-License-Identifier: Apache-2.0
// A kernel for which nobody has said what it may take: that its argument's type has a name with a
// kernel's name in it says nothing.
// expect: is not in limits.txt

struct sol_norm_kernel_args {
    int *out;
};

__global__ void planted(struct sol_norm_kernel_args args)
{
    *args.out = 1;
}
