# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# check.sh: for tests that are shell scripts: cases that are counted. Sets `passed` and `failed` to
# 0; `work`, a folder of the script's own, must be set before `check` is called.
passed=0 failed=0
check() { # check NAME COMMAND...: passes if the command does; shows the end of its output if not
    if "${@:2}" >"$work/log" 2>&1; then
        passed=$((passed + 1))
        echo "ok       $1"
    else
        failed=$((failed + 1))
        echo "FAILED   $1"
        tail -n 30 "$work/log"
    fi
}
