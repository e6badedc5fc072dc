#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# house.sh: rules of docs/hacking.md that a compiler does not know.
set -u
cd "$(dirname "$0")/../.."
passed=0 failed=0
sources() { git ls-files -co --exclude-standard -- "$@" | while read -r f; do [ -f "$f" ] && echo "$f"; done; }
empty() { # empty NAME TEXT: passes if TEXT is empty
    if [ -z "$2" ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf 'FAILED: %s\n%s\n' "$1" "$2"
    fi
}
code=$(sources 'src/*.c' 'src/*.h' 'src/*.cu' 'src/*.cuh' 'tools/*.c' 'tools/*.h' 'include/*.h' \
    'tests/*.c' 'tests/*.h' 'examples/*.c')

empty "a file without an SPDX line in its first three" "$(
    { echo "$code"; sources '*.sh' '*.cmake' '*CMakeLists.txt' '*.py'; } | while read -r f; do
        head -n 3 "$f" | grep -q 'SPDX-License-Identifier: Apache-2.0' || echo "$f"
    done)"
empty "malloc and friends outside src/base" "$(sources 'src/*.c' | grep -vE '^src/(base|emu)/' |
    xargs -r grep -nE '\b(malloc|calloc|realloc|free|strdup|posix_memalign|aligned_alloc)\(')"
empty "exit, abort or assert in the library" "$(sources 'src/*.c' 'src/*.h' | grep -v '^src/emu/' |
    xargs -r grep -nE '(^|[^_a-z.>])(exit|_exit|abort|quick_exit|assert)\(')"
empty "two source files of one name" "$(sources 'src/*.c' 'src/*.h' 'src/*.cu' 'src/*.cuh' |
    sed 's,.*/,,' | sort | uniq -d)"
empty "lines over 100 columns" "$(echo "$code" | xargs -r grep -nE '^.{101,}$')"
empty "unfinished work" "$(echo "$code" | xargs -r grep -nE '\b(TODO|FIXME|XXX)\b')"
empty "links in docs that lead nowhere" "$(sources '*.md' | while read -r f; do
    grep -oE '\]\([^)# ]+' "$f" | sed 's/^](//' | grep -v '://' | while read -r link; do
        [ -e "$(dirname "$f")/$link" ] || echo "$f: $link"
    done
done)"
empty "environment variables that docs/environment.md does not have" "$(
    sources 'src/*.c' 'src/*.h' 'tools/*.c' 'tools/*.h' 'python/*.py' | grep -v '^src/emu/' |
        xargs -r grep -ohE '"SOLCCL_[A-Z0-9_]+"' | tr -d '"' | sort -u | while read -r name; do
        grep -qF "\`$name\`" docs/environment.md || echo "$name"
    done)"
empty "a document that docs/README.md does not have" "$(sources 'docs/*.md' | sed 's,^docs/,,' |
    grep -vx README.md | while read -r f; do grep -qF "($f)" docs/README.md || echo "$f"; done)"
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
