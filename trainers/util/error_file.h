// Leaves the fields of this process's error in a file, for the launcher that started it.
#pragma once
#include <optional>
#include <string>

#include "belfry/framework/base/error.h"

namespace belfry {

// A launcher names a file by this variable of each process, as torchrun does.
inline constexpr char kErrorFileVariable[] = "TORCHELASTIC_ERROR_FILE";

// Writes the file that the environment names, if it names one: the text for people, where torchrun
// looks for it, and `error` with the fields. A failure to write is a warning.
void write_error_file(const ErrorFields& error) noexcept;

// What a process has written there; none if there is no such file, or it has no fields.
std::optional<ErrorFields> read_error_file(const std::string& path);

}  // namespace belfry
