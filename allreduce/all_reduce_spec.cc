#include "belfry/allreduce/all_reduce_spec.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <system_error>

#include "belfry/allreduce/mixed.h"
#include "belfry/allreduce/strategy.h"
#include "belfry/framework/base/error.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"

namespace belfry {
namespace {

// Reads all of `text` as a decimal number. Returns std::errc() and sets `value`, or returns the
// error.
template <class T>
std::errc read(std::string_view text, T& value) {
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return stop == end ? error : std::errc::invalid_argument;
}

std::vector<std::string> chunked_strategies() {
  std::vector<std::string> names = strategy_names();
  std::erase_if(names, [](auto& name) { return !make_named_strategy(name)->in_chunks(2); });
  return names;
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  AllReduceSpec parse() const {
    const std::vector<std::string_view> pieces = split(text_, ':');
    check(pieces.size() % 2 == 1,
          "not well formed: strategies and limits alternate, and a strategy comes last");
    AllReduceSpec spec;
    for (std::size_t i = 0; i < pieces.size(); i += 2) {
      AllReduceRange range = parse_range(pieces[i]);
      check(range.strategy != "auto" || pieces.size() == 1,
            "'auto' chooses for all sizes, so it stands alone");
      if (i + 1 < pieces.size()) {
        range.limit = parse_limit(pieces[i + 1]);
        check(i == 0 || range.limit > spec.ranges.back().limit, "limit '", pieces[i + 1],
              "' is not above the one before it, so '", pieces[i], "' would get no tensor");
      }
      spec.ranges.push_back(std::move(range));
    }
    return spec;
  }

 private:
  template <class... Parts>
  void check(bool condition, const Parts&... why) const {
    require(condition, "all-reduce spec '", shown(text_), "': ", why...);
  }

  AllReduceRange parse_range(std::string_view piece) const {
    const std::size_t mark = piece.find('#');
    AllReduceRange range{.strategy = std::string(piece.substr(0, mark))};
    if (range.strategy == "auto") {
      check(mark == piece.npos, "'", shown(piece), "': auto takes no number of chunks");
      return range;
    }
    std::unique_ptr<Strategy> strategy;
    try {
      strategy = make_named_strategy(range.strategy);
    } catch (const InvalidArgument& error) {
      check(false, error.what());
    }
    if (mark == piece.npos) return range;
    const std::errc error = read(piece.substr(mark + 1), range.chunks);
    check(error == std::errc() && range.chunks >= 1 && range.chunks <= kMostChunks, "'",
          shown(piece), "': '", shown(piece.substr(mark + 1)),
          "' is not a number of chunks between 1 and ", kMostChunks);
    if (!strategy->in_chunks(2))
      check(false, "'", shown(piece), "': ", range.strategy,
            " takes no number of chunks; these do: ", join(chunked_strategies()));
    return range;
  }

  std::int64_t parse_limit(std::string_view piece) const {
    constexpr std::string_view kSuffixes = "KMGT";
    std::string_view digits = piece;
    int power = 0;
    if (!piece.empty()) {
      const char suffix = piece.back() == 'k' ? 'K' : piece.back();
      if (const std::size_t at = kSuffixes.find(suffix); at != kSuffixes.npos) {
        power = static_cast<int>(at) + 1;
        digits.remove_suffix(1);
      }
    }
    std::int64_t bytes = 0;
    const std::errc error = read(digits, bytes);
    check(error != std::errc::invalid_argument, "limit '", shown(piece),
          "' is not a whole number of bytes, with K, M, G or T for powers of 1024");
    const int shift = 10 * power;
    check(error == std::errc() && bytes <= std::numeric_limits<std::int64_t>::max() >> shift,
          "limit '", shown(piece), "' is out of range");
    check(bytes >= 1, "limit '", shown(piece), "' is below 1 byte: no tensor would be taken");
    return bytes << shift;
  }

  std::string_view text_;
};

std::unique_ptr<Strategy> make_range(const AllReduceRange& range) {
  std::unique_ptr<Strategy> strategy = make_named_strategy(range.strategy);
  return range.chunks == 1 ? std::move(strategy) : strategy->in_chunks(range.chunks);
}

}  // namespace

bool AllReduceSpec::uses(std::string_view strategy) const {
  return std::ranges::find(ranges, strategy, &AllReduceRange::strategy) != ranges.end();
}

AllReduceSpec parse_all_reduce_spec(std::string_view text) { return Parser(text).parse(); }

std::unique_ptr<Strategy> make_strategy(std::string_view text) {
  const AllReduceSpec spec = parse_all_reduce_spec(text);
  require(!spec.is_auto(), "all-reduce spec 'auto' is not a strategy but the wish for a choice, ",
          "which has not been made; name a strategy, e.g. collective");
  if (spec.ranges.size() == 1) return make_range(spec.ranges[0]);
  std::vector<SizeRange> ranges;
  for (const AllReduceRange& range : spec.ranges)
    ranges.push_back({make_range(range), range.limit});
  return mixed(std::move(ranges), std::string(text));
}

}  // namespace belfry
