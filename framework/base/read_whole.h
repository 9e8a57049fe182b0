// Reads a whole file into memory of the caller's choice.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "belfry/framework/base/file_system.h"

namespace belfry {

// `memory` is called with the size of the file and returns memory of that size, or throws
// std::bad_alloc or OutOfMemory. Throws IoError naming `path` if the file has more than `most`
// bytes, if there is no memory for it, or if its size has changed meanwhile.
void read_whole(ReadableFile& file, const std::string& path, std::uint64_t most,
                const std::function<std::span<std::byte>(std::uint64_t bytes)>& memory);

}  // namespace belfry
