// Stands in for NCCL, on memory of the host. It makes a sum when all ranks have asked for it, in
// one order. It refuses calls that NCCL would refuse or hang in, and fails when it is told to. A
// communicator that does not block cannot be captured with others.
#pragma once
#include <string>

#include "belfry/framework/cuda/runtime/nccl_library.h"

namespace belfry::cuda {

class FakeNccl {
 public:
  // Only one may live at a time.
  FakeNccl();
  ~FakeNccl();
  FakeNccl(const FakeNccl&) = delete;
  FakeNccl& operator=(const FakeNccl&) = delete;

  const NcclLibrary& library() const { return library_; }

  // The next call of this name returns `code`, after `but` calls that do not.
  void fail(std::string call, ncclResult_t code, int but = 0);
  // The work of the next call of this name stays in progress.
  void stall(std::string call);
  // The work of each call is in progress for so many questions.
  void delay(int questions);
  // Whether this thread captures.
  void capture(bool on);
  // Makes a rank fail between calls.
  void break_rank(int rank, ncclResult_t code);

  int alive() const;  // communicators
  int finalized() const;
  int aborted() const;
  int called(const std::string& call) const;  // how often
  std::string misuse() const;                 // the first misuse, or ""

 private:
  NcclLibrary library_;
};

}  // namespace belfry::cuda
