// The rows of SaveSchedule.
#pragma once
#include "belfry/trainers/options/option.h"
#include "belfry/trainers/runs/run_saver.h"

namespace belfry {

Options<SaveSchedule> save_options();

}  // namespace belfry
