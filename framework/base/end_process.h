// Ends a process that cannot clean up, but not while it writes something that would be lost.
#pragma once
#include <chrono>
#include <string_view>

namespace belfry {

// Ends the process at once: no destructor runs, and buffered output is lost. For a process whose
// threads can no longer be ended, and for a child that failed to start its program.
[[noreturn]] void end_process(int code);

// While one lives, this process writes something that a kill would destroy, such as a checkpoint.
// Whoever would end the process, because it or another one has failed, first waits until none
// lives, but no longer than kMostUnfinished.
class UnfinishedWrite {
 public:
  UnfinishedWrite();
  ~UnfinishedWrite();
  UnfinishedWrite(const UnfinishedWrite&) = delete;
  UnfinishedWrite& operator=(const UnfinishedWrite&) = delete;

  // Whether any exists in this process.
  static bool any();
};

// From the failure on.
inline constexpr std::chrono::minutes kMostUnfinished{10};

// A launcher names a file by this variable of each process. The file is locked (FileSystem::lock)
// while that process has an UnfinishedWrite.
inline constexpr char kUnfinishedVariable[] = "BELFRY_UNFINISHED_LOCK";

// Also prints last words to stderr, but takes no more than a second: if nobody reads stderr, they
// are lost. They bypass the log, whose lock may be held by a thread that is stuck in a write.
[[noreturn]] void end_process(int code, std::string_view last_words);

}  // namespace belfry
