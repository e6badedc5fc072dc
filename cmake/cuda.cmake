# SPDX-License-Identifier: Apache-2.0
#
# GPU ranks. Adds src/backend/cuda and src/device to solccl_objects when nvcc is there (SOLCCL_CUDA
# is auto) or demanded (on), and defines SOL_WITH_CUDA. Sets SOLCCL_WITH_CUDA.
set(SOLCCL_WITH_CUDA FALSE)
file(GLOB SOLCCL_CUDA_SOURCES CONFIGURE_DEPENDS
     src/backend/cuda/*.c src/backend/cuda/*.cu src/device/prim/*.cu src/device/kernels/*.cu)

if(NOT SOLCCL_CUDA STREQUAL "off" AND SOLCCL_CUDA_SOURCES)
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    set(SOLCCL_WITH_CUDA TRUE)
  elseif(SOLCCL_CUDA STREQUAL "on")
    message(FATAL_ERROR "SOLCCL_CUDA is on, but no nvcc was found: set CMAKE_CUDA_COMPILER")
  endif()
endif()

if(SOLCCL_WITH_CUDA)
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80 90 100)
  endif()
  enable_language(CUDA)
  find_package(CUDAToolkit REQUIRED)
  target_sources(solccl_objects PRIVATE ${SOLCCL_CUDA_SOURCES})
  target_compile_definitions(solccl_objects PRIVATE SOL_WITH_CUDA=1)
  target_include_directories(solccl_objects PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
  # The static runtime, and the driver looked up at run time: the library loads without a GPU.
  list(APPEND SOLCCL_PRIVATE_LIBS CUDA::cudart_static)
endif()
