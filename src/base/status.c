/* SPDX-License-Identifier: Apache-2.0 */
/*
 * status.c: a phrase for every status, and the version. The phrase says what
 * kind of thing went wrong; the story (who, where, how big) is the business of
 * sol_last_error.
 */
#include "base/base.h"

const char *sol_status_string(sol_status_t status)
{
    switch (status) {
    case SOL_OK:
        return "success";
    case SOL_ERR_ARGUMENT:
        return "an argument is wrong";
    case SOL_ERR_UNSUPPORTED:
        return "not supported on this machine or build";
    case SOL_ERR_MEMORY:
        return "memory was refused";
    case SOL_ERR_SYSTEM:
        return "a system call failed";
    case SOL_ERR_TIMEOUT:
        return "a wait timed out";
    case SOL_ERR_PEER:
        return "another rank failed or died";
    case SOL_ERR_ABORTED:
        return "the communicator was aborted";
    case SOL_ERR_MISMATCH:
        return "ranks called different things";
    case SOL_ERR_STATE:
        return "not legal in this state";
    case SOL_ERR_DEVICE:
        return "the GPU or its driver reported an error";
    case SOL_ERR_INTERNAL:
        return "a fault inside solccl";
    }
    return "unknown status";
}

int sol_version(void)
{
    return SOL_VERSION;
}
