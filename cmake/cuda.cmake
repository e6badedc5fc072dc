# SPDX-License-Identifier: Apache-2.0
#
# GPU ranks. Adds src/backend/cuda and src/device to solccl_objects when nvcc is there (SOLCCL_CUDA
# is auto) or demanded (on), and defines SOL_WITH_CUDA. Sets SOLCCL_WITH_CUDA.
set(SOLCCL_CUDA_ARCHS "80;90;100" CACHE STRING
    "GPU architectures to compile for; the last one's PTX serves newer GPUs")
set(SOLCCL_WITH_CUDA FALSE)
file(GLOB SOLCCL_CUDA_HOST CONFIGURE_DEPENDS src/backend/cuda/*.c src/backend/cuda/*.cu)
file(GLOB SOLCCL_CUDA_DEVICE CONFIGURE_DEPENDS src/device/prim/*.cu src/device/kernels/*.cu)
set(SOLCCL_CUDA_SOURCES ${SOLCCL_CUDA_HOST} ${SOLCCL_CUDA_DEVICE})

if(NOT SOLCCL_CUDA STREQUAL "off" AND SOLCCL_CUDA_DEVICE)
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    set(SOLCCL_WITH_CUDA TRUE)
  elseif(SOLCCL_CUDA STREQUAL "on")
    message(FATAL_ERROR "SOLCCL_CUDA is on, but no nvcc was found: set CMAKE_CUDA_COMPILER")
  endif()
endif()

if(SOLCCL_WITH_CUDA)
  # machine code for each, and PTX of the last
  set(CMAKE_CUDA_ARCHITECTURES ${SOLCCL_CUDA_ARCHS})
  list(TRANSFORM CMAKE_CUDA_ARCHITECTURES APPEND "-real")
  list(GET SOLCCL_CUDA_ARCHS -1 last)
  list(APPEND CMAKE_CUDA_ARCHITECTURES ${last}-virtual)
  set(CMAKE_CUDA_STANDARD 17)
  enable_language(CUDA)
  find_package(CUDAToolkit REQUIRED)
  target_sources(solccl_objects PRIVATE ${SOLCCL_CUDA_SOURCES})
  set_target_properties(solccl_objects PROPERTIES
    CUDA_ARCHITECTURES "${CMAKE_CUDA_ARCHITECTURES}" CUDA_STANDARD 17
    CUDA_VISIBILITY_PRESET hidden)
  target_compile_definitions(solccl_objects PRIVATE SOL_WITH_CUDA=1)
  target_include_directories(solccl_objects PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
  # The static runtime, and the driver looked up at run time: the library loads without a GPU.
  list(APPEND SOLCCL_PRIVATE_LIBS CUDA::cudart_static)
endif()
