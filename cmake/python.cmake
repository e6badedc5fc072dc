# SPDX-License-Identifier: Apache-2.0
#
# The Python package's extension (python/fast.c), beside the library: where Python's headers are, and for
# the stable ABI of 3.11, so that one file serves every later Python. The package works without it.
option(SOLCCL_PYTHON "Build the Python package's extension where Python's headers are found" ON)
if(SOLCCL_PYTHON AND NOT SOLCCL_SANITIZE)
  if(NOT DEFINED Python3_FIND_STRATEGY)
    set(Python3_FIND_STRATEGY VERSION)
  endif()
  find_package(Python3 3.11 QUIET COMPONENTS Development.Module)
endif()
if(Python3_Development.Module_FOUND)
  add_library(solccl_fast MODULE python/fast.c)
  set_target_properties(solccl_fast PROPERTIES PREFIX "" OUTPUT_NAME _fast SUFFIX .abi3.so
                                               LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
  target_compile_definitions(solccl_fast PRIVATE Py_LIMITED_API=0x030B0000)
  target_compile_options(solccl_fast PRIVATE ${SOLCCL_C_FLAGS})
  target_include_directories(solccl_fast PRIVATE include)
  target_include_directories(solccl_fast SYSTEM PRIVATE ${Python3_INCLUDE_DIRS})
endif()
