# cmake -D VERSION=... -D OUTPUT=FILE -D "HEADERS=a.h;b.h" -P build_identity.cmake
# Writes what the library and its GPU module must agree on: the version, and a hash of the headers
# that say how objects lie in memory. FILE is left alone if nothing has changed.
set(all "")
foreach(header ${HEADERS})
  file(SHA256 ${header} hash)
  string(APPEND all ${hash})
endforeach()
string(SHA256 hash "${all}")
string(SUBSTRING ${hash} 0 12 hash)
file(CONFIGURE OUTPUT ${OUTPUT} @ONLY
     CONTENT "#pragma once\n#define BELFRY_BUILD_IDENTITY \"${VERSION}-${hash}\"\n")
