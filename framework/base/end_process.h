// How a process ends where nothing can be cleaned up.
#pragma once

namespace belfry {

// At once: no destructor runs, and nothing is written that waits to be. For a process whose threads
// cannot be ended any more, and for a child that could not become the program that it was to be.
[[noreturn]] void end_process(int code);

}  // namespace belfry
