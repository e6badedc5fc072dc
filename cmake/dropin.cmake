# SPDX-License-Identifier: Apache-2.0
#
# libsolccl-nccl.so, in front of NCCL (src/dropin/nccl/dropin.h): one file with all of solccl in it,
# so that it can be preloaded or named by path without a library path. Built without CUDA too: it
# then hands everything through, and its tests run on CPU ranks.
option(SOLCCL_DROPIN "Build the library that stands in front of NCCL" ON)
set(SOLCCL_WITH_DROPIN FALSE)
if(SOLCCL_DROPIN AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64|aarch64|arm64"
   AND CMAKE_SYSTEM_NAME STREQUAL "Linux")
  set(SOLCCL_WITH_DROPIN TRUE)
  enable_language(ASM)
  file(GLOB SOLCCL_DROPIN_SOURCES CONFIGURE_DEPENDS src/dropin/nccl/*.c src/dropin/nccl/*.S)
  add_library(solccl_nccl SHARED ${SOLCCL_DROPIN_SOURCES} $<TARGET_OBJECTS:solccl_objects>)
  set_target_properties(solccl_nccl PROPERTIES
    OUTPUT_NAME solccl-nccl VERSION ${PROJECT_VERSION} SOVERSION ${SOLCCL_MAJOR}
    LINKER_LANGUAGE C LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/dropin.map)
  target_include_directories(solccl_nccl PRIVATE ${PROJECT_SOURCE_DIR}/include
                                                 ${PROJECT_SOURCE_DIR}/src)
  target_compile_options(solccl_nccl PRIVATE $<$<COMPILE_LANGUAGE:C>:${SOLCCL_C_FLAGS}>)
  target_link_libraries(solccl_nccl PRIVATE Threads::Threads ${SOLCCL_PRIVATE_LIBS})
  # -Bsymbolic: its own calls of ncclX and sol_x stay inside, whoever else defines them.
  target_link_options(solccl_nccl PRIVATE "LINKER:--as-needed" "LINKER:-Bsymbolic"
                      "LINKER:--version-script=${PROJECT_SOURCE_DIR}/cmake/dropin.map")
  if(NOT SOLCCL_SANITIZE)
    target_link_options(solccl_nccl PRIVATE "LINKER:--no-undefined")
  endif()

  # For engines that open a library by path: the drop-in first, and NCCL itself behind it, where
  # functions are found that the drop-in does not know. (A preloaded one must not do that: it would
  # choose an NCCL before the program has chosen its own.)
  file(WRITE ${PROJECT_BINARY_DIR}/empty.c "")
  add_library(solccl_nccl_name SHARED ${PROJECT_BINARY_DIR}/empty.c) # only for its name
  set_target_properties(solccl_nccl_name PROPERTIES OUTPUT_NAME nccl SOVERSION 2
                        LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/name)
  add_library(solccl_nccl_path SHARED ${PROJECT_BINARY_DIR}/empty.c)
  set_target_properties(solccl_nccl_path PROPERTIES OUTPUT_NAME solccl-nccl-path
                        BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "$ORIGIN")
  target_link_libraries(solccl_nccl_path PRIVATE solccl_nccl solccl_nccl_name)
  target_link_options(solccl_nccl_path PRIVATE "LINKER:--no-as-needed")

  if(SOLCCL_WITH_CUDA)
    target_compile_definitions(solccl_nccl PRIVATE SOL_WITH_CUDA=1)
    target_include_directories(solccl_nccl PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
  endif()
endif()
