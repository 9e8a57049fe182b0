#include "belfry/framework/cuda/runtime/cuda_check.h"

#include "belfry/framework/base/text.h"

namespace belfry::cuda {
namespace {

template <class Status>
std::string described(const char* text, const char* name, Status status) {
  return cat(text, " (", name, ", ", static_cast<int>(status), ")");
}

template <class Status>
[[noreturn]] void device_error(Status status, std::string_view call, const std::string& context) {
  throw DeviceError(cat(call, " failed: ", status_text(status), ", ", context));
}

}  // namespace

std::string status_text(cudaError_t status) {
  return described(cudaGetErrorString(status), cudaGetErrorName(status), status);
}

std::string status_text(cublasStatus_t status) {
  return described(cublasLtGetStatusString(status), cublasLtGetStatusName(status), status);
}

std::string status_text(cudnnStatus_t status) {
  char details[512] = {};
  cudnnGetLastErrorString(details, sizeof details);
  const char* const name = cudnnGetErrorString(status);
  return details[0] != '\0' ? described(details, name, status)
                            : cat(name, " (", static_cast<int>(status), ")");
}

std::string version_text(std::size_t version) {
  return cat(version / 10000, ".", version % 10000 / 100, ".", version % 100);
}

std::string_view called(std::string_view expression) {
  expression = expression.substr(0, expression.find('('));
  const std::size_t before = expression.find_last_of(".>:");
  return before == expression.npos ? expression : expression.substr(before + 1);
}

void fail(cudaError_t status, std::string_view call, const std::string& context) {
  cudaGetLastError();
  device_error(status, call, context);
}

void fail(cublasStatus_t status, std::string_view call, const std::string& context) {
  device_error(status, call, context);
}

void fail(cudnnStatus_t status, std::string_view call, const std::string& context) {
  device_error(status, call, context);
}

}  // namespace belfry::cuda
