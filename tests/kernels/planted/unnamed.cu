// SPDX-License-Identifier: Apache-2.0
// A kernel for which nobody has said what it may take.
// expect: is not in limits.txt

__global__ void planted(int *out)
{
    *out = 1;
}
