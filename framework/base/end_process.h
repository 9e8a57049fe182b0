// Ends a process that cannot clean up.
#pragma once

namespace belfry {

// Ends the process at once: no destructor runs, and buffered output is lost. For a process whose
// threads cannot be ended any more, and for a child that failed to start its program.
[[noreturn]] void end_process(int code);

}  // namespace belfry
