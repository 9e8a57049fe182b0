// LSTM and GRU by cuDNN's functions for recurrent networks. No other source calls them.
#pragma once
#include <vector>

#include "belfry/framework/cuda/kernels/calls.h"
#include "belfry/framework/cuda/runtime/handles.h"
#include "belfry/framework/cuda/runtime/where.h"

namespace belfry::cuda {

using RnnDescriptor = Owned<cudnnRNNDescriptor_t, cudnnDestroyRNNDescriptor>;
using RnnDataDescriptor = Owned<cudnnRNNDataDescriptor_t, cudnnDestroyRNNDataDescriptor>;

// Computes a Recurrence by one of cuDNN's algorithms. cuDNN reads the lengths of rows from the host
// when it is called, so rows of different lengths would need the host in each step.
class CudnnRecurrence {
 public:
  // The algorithms for which cuDNN keeps its weights in the order of RecurrenceTensors, and saves
  // no more than saved_bytes. None is marked as deterministic.
  static std::vector<CudnnAlgorithm> algorithms(const Recurrence& recurrence, cudnnHandle_t handle,
                                                const Where& where);

  // Needs no GPU. `number` is a cudnnRNNAlgo_t. Throws DeviceError if cuDNN refuses it.
  CudnnRecurrence(const Recurrence& recurrence, int number, const Where& where);

  // Whether weights lie in cuDNN's memory for them as in RecurrenceTensors::weights.
  bool packs_like_us(cudnnHandle_t handle, const Where& where) const;

  // These enqueue, and throw DeviceError if cuDNN refuses the call.
  void run(cudnnHandle_t handle, const RecurrenceCall& call, const Where& where) const;
  void run_back(cudnnHandle_t handle, const RecurrenceGradCall& call, const Where& where) const;

 private:
  Recurrence recurrence_;
  RnnDescriptor rnn_;
  RnnDataDescriptor x_, y_;
  TensorDescriptor state_;
};

}  // namespace belfry::cuda
