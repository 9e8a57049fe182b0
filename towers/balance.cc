#include "belfry/towers/balance.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "belfry/framework/base/text.h"

namespace belfry {
namespace {

std::int64_t bytes_of(Variable v) {
  return v.shape().elements() * static_cast<std::int64_t>(size_of(v.dtype()));
}

}  // namespace

BalanceReport balance_report(const Graph& graph, std::span<const DeviceSpec> devices) {
  std::map<DeviceSpec, BalanceReport::Device> by_device;
  for (const DeviceSpec& device : devices) by_device[device].device = device;
  BalanceReport report;
  for (const Variable& v : graph.variables()) {
    BalanceReport::Device& row = by_device[v.device()];
    row.device = v.device();
    row.bytes += bytes_of(v);
    ++row.variables;
    report.bytes += bytes_of(v);
    ++report.variables;
  }
  std::int64_t largest = 0;
  for (const auto& [device, row] : by_device) {
    report.devices.push_back(row);
    largest = std::max(largest, row.bytes);
  }
  if (report.bytes > 0)
    report.imbalance = static_cast<double>(largest) * static_cast<double>(report.devices.size()) /
                       static_cast<double>(report.bytes);
  return report;
}

std::string BalanceReport::str() const {
  std::string text = cat(variables, " variables, ", bytes, " bytes on ", devices.size(),
                         " devices, imbalance ", std::round(imbalance * 100) / 100);
  for (const Device& row : devices)
    text += cat("\n  ", row.device.empty() ? "(no device requested)" : row.device.str(), ": ",
                row.bytes, " bytes in ", row.variables, " variables");
  return text;
}

}  // namespace belfry
