// How many workers a plan has use for.
#pragma once
#include "belfry/framework/plan/plan.h"

namespace belfry {

// Per launch, the bytes that it reads of tensors that other workers wrote last, in the same run or
// in the one before. They may still lie in those workers' caches. Counts `most_of_each` at most of
// each tensor. Of what all workers write or read in parts, each has its part.
Indexed<Launch, double> bytes_from_other_workers(const Plan& plan,
                                                 const Indexed<Strand, int>& worker_of, int workers,
                                                 double most_of_each);

// How many of `most` workers, at least 1, make a run of the plan fastest: 1 or workers_for().
// Guessed from the bytes that launches touch and from bytes_from_other_workers().
int useful_workers(const Plan& plan, int most);

}  // namespace belfry
