// The rows of BatchOptions.
#pragma once
#include "belfry/trainers/data/batches.h"
#include "belfry/trainers/options/option.h"

namespace belfry {

Options<BatchOptions> batch_option_rows();

}  // namespace belfry
