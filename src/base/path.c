/* SPDX-License-Identifier: Apache-2.0 */
/*
 * path.c: may code be loaded from the file that a variable names? Not if anybody
 * at all could have put it there: then whoever sets the variable by mistake
 * (/tmp/lib.so) hands the process to the first who comes.
 */
#include "base/base.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The entry itself, in a directory that was found good. A sticky directory (/tmp) is writable, but
 * what is in it is its owner's: then that entry must not be a stranger's. */
static bool everybody_may_write(const char *path, bool *sticky, char *why, size_t why_bytes)
{
    struct stat st;
    if (stat(path, &st) != 0) {
        snprintf(why, why_bytes, "%.300s: %s", path, strerror(errno));
        return true;
    }
    bool own = st.st_uid == 0 || st.st_uid == geteuid();
    bool open =
        (st.st_mode & S_IWOTH) != 0 && !(S_ISDIR(st.st_mode) && (st.st_mode & S_ISVTX) != 0);
    if (open || (*sticky && !own)) {
        snprintf(why, why_bytes,
                 "%.300s can be written by every user: nothing is loaded from there", path);
        return true;
    }
    *sticky = S_ISDIR(st.st_mode) && (st.st_mode & S_IWOTH) != 0;
    return false;
}

bool sol_path_trusted(const char *path, char resolved[SOL_PATH_BYTES], char *why, size_t why_bytes)
{
    char part[SOL_PATH_BYTES];
    bool sticky = false;
    if (strchr(path, '/') == NULL && strlen(path) < SOL_PATH_BYTES) {
        strcpy(resolved, path); /* a name: where that leads is the loader's own affair */
        return true;
    }
    if (realpath(path, resolved) == NULL) {
        snprintf(why, why_bytes, "%.300s: %s", path, strerror(errno));
        return false;
    }
    for (size_t i = 0; resolved[i] != '\0'; i++) {
        if (resolved[i] == '/') {
            memcpy(part, resolved, i + 1);
            part[i + 1] = '\0';
            if (everybody_may_write(part, &sticky, why, why_bytes)) {
                return false;
            }
        }
    }
    return !everybody_may_write(resolved, &sticky, why, why_bytes);
}
