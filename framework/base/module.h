// Modules: libraries shipped with Belfry that are loaded when they are needed.
#pragma once
#include <string>

namespace belfry {

// The path of a module: next to the library of Belfry if it is there, else the name alone, which
// the system looks up.
std::string module_path(const std::string& name);

// The symbol `entry` of a module. The module stays loaded for good. Throws DeviceError saying why
// it cannot be loaded.
void* module_entry(const std::string& path, const char* entry);

}  // namespace belfry
