#include "belfry/framework/group/host_list.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "belfry/framework/base/require.h"

namespace belfry {
namespace {

constexpr std::size_t kMostHosts = 1 << 16;
constexpr std::size_t kMostHostDigits = 9;
constexpr std::size_t kLongestHost = 255;  // of a name in DNS

bool is_host_digit(char c) { return c >= '0' && c <= '9'; }

// Of the part of a name that is outside of brackets.
bool is_name_character(char c) {
  return is_host_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
         c == '_' || c == '.';
}

int number_of_host(std::string_view digits) {
  require(!digits.empty() && digits.size() <= kMostHostDigits &&
              std::ranges::all_of(digits, is_host_digit),
          "'", shown(digits), "' is no number");
  int value = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return value;
}

// "7", or "08-11", whose numbers have at least the digits of the first.
void add_range(std::string_view range, std::vector<std::string>& numbers) {
  const std::size_t dash = range.find('-');
  const std::string_view first = range.substr(0, dash);
  const int low = number_of_host(first);
  const int high = dash == range.npos ? low : number_of_host(range.substr(dash + 1));
  require(low <= high, "the range '", range, "' ends before it begins");
  require(numbers.size() + static_cast<std::size_t>(high - low) < kMostHosts, "the range '", range,
          "' has too many hosts");
  for (int i = low; i <= high; ++i) {
    const std::string digits = std::to_string(i);
    numbers.push_back(std::string(first.size() - std::min(first.size(), digits.size()), '0') +
                      digits);
  }
}

// Each of `hosts` followed by each of `ends`.
std::vector<std::string> continued(const std::vector<std::string>& hosts,
                                   const std::vector<std::string>& ends) {
  require(hosts.size() * ends.size() <= kMostHosts, "it has more than ", kMostHosts, " hosts");
  std::vector<std::string> all;
  all.reserve(hosts.size() * ends.size());
  for (const std::string& host : hosts)
    for (const std::string& end : ends) {
      require(host.size() + end.size() <= kLongestHost, "the name of a host is longer than ",
              kLongestHost, " characters");
      all.push_back(host + end);
    }
  return all;
}

// The hosts of "a[1-2]-ib", without commas outside of brackets.
std::vector<std::string> hosts_of_name(std::string_view name) {
  require(!name.empty(), "a name is empty");
  std::vector<std::string> hosts{""};
  while (!name.empty()) {
    const std::size_t open = std::min(name.find('['), name.size());
    const std::string_view plain = name.substr(0, open);
    require(std::ranges::all_of(plain, is_name_character), "'", shown(plain),
            "' cannot be in the name of a host");
    hosts = continued(hosts, {std::string(plain)});
    if (open == name.size()) break;
    const std::size_t close = name.find(']', open);
    require(close != name.npos, "a '[' has no ']'");
    std::vector<std::string> numbers;
    for (const std::string_view range : split(name.substr(open + 1, close - open - 1), ','))
      add_range(range, numbers);
    hosts = continued(hosts, numbers);
    name.remove_prefix(close + 1);
  }
  return hosts;
}

}  // namespace

std::vector<std::string> read_host_list(std::string_view text) try {
  std::vector<std::string> hosts;
  std::size_t begin = 0;
  bool inside = false;  // of brackets, where commas separate numbers
  for (std::size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && text[i] == '[') inside = true;
    if (i < text.size() && text[i] == ']') inside = false;
    if (i < text.size() && (text[i] != ',' || inside)) continue;
    for (std::string& host : hosts_of_name(text.substr(begin, i - begin)))
      hosts.push_back(std::move(host));
    require(hosts.size() <= kMostHosts, "it has more than ", kMostHosts, " hosts");
    begin = i + 1;
  }
  return hosts;
} catch (const InvalidArgument& error) {
  throw InvalidArgument(cat("'", shown(text), "' is no list of hosts: ", error.what()));
}

}  // namespace belfry
