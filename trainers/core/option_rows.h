// The rows of TrainerOptions: the source of flags, configurations, reports, fingerprints and
// refusals.
#pragma once
#include <span>
#include <string>

#include "belfry/trainers/core/trainer_options.h"
#include "belfry/trainers/options/option.h"

namespace belfry {

struct TrainerKind;

// By subject, in the order of --help.
Options<TrainerOptions> combining_options();
Options<TrainerOptions> batch_options();
Options<TrainerOptions> length_options();
Options<TrainerOptions> computing_options();
Options<TrainerOptions> data_options();
Options<TrainerOptions> execution_options();

// All of these.
const Options<TrainerOptions>& trainer_option_rows();
// The options that trainers of this kind have in addition (TrainerKind::options).
Options<TrainerOptions> own_option_rows(const TrainerKind& kind);

// Whether an option changes what is trained, so that processes and resumed runs compare it.
bool is_in_fingerprint(const OptionRow& row);

// Throws OptionError for the first option that a row refuses.
void check_rows(const TrainerOptions& options, const TrainerKind& kind);

// Why these devices do not compute in a precision; "" if they do.
std::string precision_refusal(Precision precision, std::span<const DeviceSpec> devices);

}  // namespace belfry
