# SPDX-License-Identifier: Apache-2.0
#
# Writes OUTPUT, a header with the commit of SOURCE; "unknown" outside a checkout.
set(commit "unknown")
find_program(GIT git)
if(GIT)
  execute_process(COMMAND ${GIT} -C ${SOURCE} rev-parse --short=10 HEAD
                  OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(found)
    set(commit ${found})
  endif()
endif()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT "#define SOLCCL_COMMIT \"${commit}\"\n")
