// A library of NCCL that works on memory of the host: a sum is made when all ranks have asked for
// it, in one order. It refuses what NCCL would refuse, or hang with, and fails where it is told to.
#pragma once
#include <string>

#include "belfry/framework/cuda/runtime/nccl_library.h"

namespace belfry::cuda {

class FakeNccl {
 public:
  // One at a time.
  FakeNccl();
  ~FakeNccl();
  FakeNccl(const FakeNccl&) = delete;
  FakeNccl& operator=(const FakeNccl&) = delete;

  const NcclLibrary& library() const { return library_; }

  // The next call of this name, but for the first `but`, returns `code`.
  void fail(std::string call, ncclResult_t code, int but = 0);
  // What the next call of this name begins stays in progress.
  void stall(std::string call);
  // What each call begins is in progress for so many questions.
  void delay(int questions);
  // A rank fails while nobody asks.
  void break_rank(int rank, ncclResult_t code);

  int alive() const;  // communicators
  int finalized() const;
  int aborted() const;
  int called(const std::string& call) const;  // how often
  std::string misuse() const;                 // the first; "" if there was none

 private:
  NcclLibrary library_;
};

}  // namespace belfry::cuda
