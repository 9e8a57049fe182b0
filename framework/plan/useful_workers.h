#pragma once
#include "belfry/framework/plan/plan.h"

namespace belfry {

// For each launch, the bytes that it reads from tensors that other workers wrote last, in this run
// or in the previous one. They may still be in the caches of those workers. At most `most_of_each`
// bytes count for each tensor. If all workers write or read a tensor in parts, each counts as
// having its part.
Indexed<Launch, double> bytes_from_other_workers(const Plan& plan,
                                                 const Indexed<Strand, int>& worker_of, int workers,
                                                 double most_of_each);

// How many of `most` workers, at least 1, make a run of the plan fastest: 1 or workers_for().
// Estimated from the bytes that launches touch and from bytes_from_other_workers().
int useful_workers(const Plan& plan, int most);

}  // namespace belfry
