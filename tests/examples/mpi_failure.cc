// Two processes by MPI. Rank 0 waits for a message, fails, and gives the memory of the message
// back. Rank 1 sends the message meanwhile, or `late`: afterwards. A thread of MPI must not write
// there. processes_test.cc runs it.
#include <chrono>
#include <iostream>
#include <string_view>
#include <thread>

#include "belfry/framework/base/allocator.h"
#include "belfry/framework/base/end_process.h"
#include "belfry/framework/base/error.h"
#include "belfry/framework/group/failure_detector.h"
#include "belfry/framework/group/mpi_module.h"
using namespace belfry;

namespace {

void poll_for(FailureDetector& group, std::chrono::milliseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < end) {
    group.beat();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace

int main(int count, char** arguments) {
  constexpr std::size_t kBytes = std::size_t{256} << 20;
  const std::chrono::milliseconds pause(500);
  const bool late = count > 1 && std::string_view(arguments[1]) == "late";
  FailureDetector group(open_mpi(), {.most_silent = 0});
  MemoryBlock block(host_allocator(), kBytes);
  GroupMessage message{1 - group.rank(), 3, {block.data(), kBytes}};
  if (group.rank() == 1) {
    if (late) poll_for(group, 2 * pause);
    group.send(message);
    poll_for(group, 8 * pause);  // longer than rank 0 lives: mpirun ends all with the first
    end_process(0);
  }
  group.receive(message);
  if (!late) poll_for(group, pause / 10);
  group.fail(std::make_exception_ptr(CommError("rank 0 has failed")));
  block.reset();
  std::this_thread::sleep_for(4 * pause);
  std::cout << "rank 0 lives" << (group.needs_memory() ? ", and keeps its memory" : "")
            << std::endl;
  end_process(0);
}
