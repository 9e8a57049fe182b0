// Modules: libraries beside Belfry's own that are loaded when they are needed.
#pragma once
#include <string>

namespace belfry {

// Where a module lies: beside the library of Belfry if it is there, else the name alone, which the
// system looks up.
std::string module_path(const std::string& name);

// What a module has by the name `entry`. It stays loaded for good. Throws DeviceError saying why it
// cannot be loaded.
void* module_entry(const std::string& path, const char* entry);

}  // namespace belfry
