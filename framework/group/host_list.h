// Lists of hosts as Slurm writes them.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace belfry {

// The hosts of "a[01-03,7]-ib,b": a01-ib, a02-ib, a03-ib, a7-ib and b, in that order. With several
// brackets in a name the last one varies fastest. Throws InvalidArgument that says what is wrong
// with `text`, also if it has more than 65,536 hosts.
std::vector<std::string> read_host_list(std::string_view text);

}  // namespace belfry
