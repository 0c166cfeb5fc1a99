# find_package(dxpu 0.2 REQUIRED COMPONENTS sodium libevent)
#
# Targets: dxpu::header is dxpu.h alone, for a program with an implementation of its own;
# dxpu::dxpu its library, dxpu::NAME a binding with what it needs.  Each library is shared;
# dxpu::NAME-static is the other kind.
if(NOT TARGET dxpu::header)
  get_filename_component(_dxpu_libraries "${CMAKE_CURRENT_LIST_DIR}/../.." ABSOLUTE)
  get_filename_component(_dxpu_include "${CMAKE_CURRENT_LIST_DIR}/@INCLUDE@" ABSOLUTE)

  add_library(dxpu::header INTERFACE IMPORTED)
  set_target_properties(dxpu::header PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${_dxpu_include}")

  # _dxpu_library(NAME FILE NEEDS... [LIBS...])
  function(_dxpu_library name file)
    cmake_parse_arguments(_dxpu "" "" "NEEDS;LIBS" ${ARGN})
    add_library(dxpu::${name} SHARED IMPORTED)
    set_target_properties(dxpu::${name} PROPERTIES
      IMPORTED_LOCATION "${_dxpu_libraries}/lib${file}.so.@SONUM@"
      IMPORTED_SONAME "lib${file}.so.@SONUM@"
      INTERFACE_LINK_LIBRARIES "${_dxpu_NEEDS}")
    set(_dxpu_static ${_dxpu_NEEDS})
    list(TRANSFORM _dxpu_static APPEND "-static" REGEX "^dxpu::[^h]|^dxpu::h[^e]")
    add_library(dxpu::${name}-static STATIC IMPORTED)
    set_target_properties(dxpu::${name}-static PROPERTIES
      IMPORTED_LOCATION "${_dxpu_libraries}/lib${file}.a"
      INTERFACE_LINK_LIBRARIES "${_dxpu_static};${_dxpu_LIBS}")
  endfunction()

  # _dxpu_inline(NAME NEEDS...): a header whose functions are inline, so no library of its own
  function(_dxpu_inline name)
    set(_dxpu_static ${ARGN})
    list(TRANSFORM _dxpu_static APPEND "-static" REGEX "^dxpu::[^h]")
    add_library(dxpu::${name} INTERFACE IMPORTED)
    set_target_properties(dxpu::${name} PROPERTIES INTERFACE_LINK_LIBRARIES "${ARGN}")
    add_library(dxpu::${name}-static INTERFACE IMPORTED)
    set_target_properties(dxpu::${name}-static PROPERTIES
      INTERFACE_LINK_LIBRARIES "${_dxpu_static}")
  endfunction()

@LIBRARIES@
  set_target_properties(dxpu::zlib dxpu::zlib-static PROPERTIES
    INTERFACE_COMPILE_DEFINITIONS "DXPU_ZLIB_USE_LIBDEFLATE=@DEFLATE@")
endif()

foreach(_dxpu_part IN LISTS dxpu_FIND_COMPONENTS)
  if(TARGET dxpu::${_dxpu_part})
    set(dxpu_${_dxpu_part}_FOUND TRUE)
  elseif(dxpu_FIND_REQUIRED_${_dxpu_part})
    set(dxpu_FOUND FALSE)
    set(dxpu_NOT_FOUND_MESSAGE "dxpu has no binding ${_dxpu_part}")
  endif()
endforeach()
