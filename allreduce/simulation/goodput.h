// Closed forms: how often to save, what faults cost, and how long the slowest of many takes.
#pragma once

namespace belfry {

// Faults of a run, in seconds.
struct FaultCosts {
  double between = 0;  // mean time between faults of the whole run
  double save = 0;     // that a save takes from training
  double restart = 0;  // from a fault until training resumes
};

// The interval between saves that loses least. Young's first order: sqrt(2 save between).
double young_interval(const FaultCosts& faults);
// Daly's estimate of higher order, of the time that is trained between two saves.
double daly_interval(const FaultCosts& faults);
// The share of the time that trains, if faults come at random and a save follows every `interval`
// seconds of training: what Daly's complete model gives.
double goodput(const FaultCosts& faults, double interval);

// The mean of the largest of n independent standard normal numbers.
double expected_largest(int n);

}  // namespace belfry
