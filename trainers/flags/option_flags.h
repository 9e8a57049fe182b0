// Adds the flags of options to a parser.
#pragma once
#include <memory>
#include <utility>

#include "belfry/trainers/flags/flag_parser.h"
#include "belfry/trainers/options/option.h"

namespace belfry {

// Adds the flag of an option, whose group, if it has one, is its heading. It sets `options`, which
// must outlive FlagParser::parse().
template <class S>
void add_option(FlagParser& parser, const Option<S>& option, S& options) {
  const auto read = [read = option.read, &options](const WrittenFlag& flag) {
    read(options, flag);
  };
  parser.add(option, read, option.start);
}

template <class S>
void add_options(FlagParser& parser, const Options<S>& table, S& options) {
  for (const Option<S>& option : table) add_option(parser, option, options);
}

// The same for an options struct that holds references to the variables it sets.
template <class S>
void add_options_for(FlagParser& parser, const Options<S>& table, S options) {
  const auto held = std::make_shared<S>(std::move(options));
  for (const Option<S>& option : table)
    parser.add(
        option, [read = option.read, held](const WrittenFlag& flag) { read(*held, flag); },
        option.start);
}

}  // namespace belfry
