# SPDX-License-Identifier: Apache-2.0
#
# What `make install` puts where: header, both libraries, pkg-config and CMake package files.
include(CMakePackageConfigHelpers)

install(TARGETS solccl solccl_static EXPORT solcclTargets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(SOLCCL_WITH_DROPIN)
  install(TARGETS solccl_nccl solccl_nccl_path LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
# In a folder of ours: python/solccl/_library.py looks there, beside the library that the loader found.
if(TARGET solccl_fast)
  install(TARGETS solccl_fast LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/solccl)
endif()
install(DIRECTORY include/solccl DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING
        PATTERN "*.h" PATTERN "*.cuh")

set(SOLCCL_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/solccl)
install(EXPORT solcclTargets NAMESPACE solccl:: DESTINATION ${SOLCCL_PACKAGE_DIR})
configure_package_config_file(cmake/solcclConfig.cmake.in ${PROJECT_BINARY_DIR}/solcclConfig.cmake
                              INSTALL_DESTINATION ${SOLCCL_PACKAGE_DIR})
# Before 1.0 a minor version may break the ABI.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/solcclConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/solcclConfig.cmake
              ${PROJECT_BINARY_DIR}/solcclConfigVersion.cmake
        DESTINATION ${SOLCCL_PACKAGE_DIR})

# Relative to the .pc file, so that an installed tree can be moved.
file(RELATIVE_PATH SOLCCL_PC_PREFIX "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
string(REGEX REPLACE "/$" "" SOLCCL_PC_PREFIX "${SOLCCL_PC_PREFIX}")
configure_file(cmake/solccl.pc.in ${PROJECT_BINARY_DIR}/solccl.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/solccl.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
