// Two devices for command lines of tests that name none. Programs themselves take all GPUs, or one
// CPU device.
#pragma once
#include <string_view>
#include <vector>

namespace belfry::test {

template <class Text>
void name_two_devices(std::vector<Text>& arguments) {
  for (const std::string_view argument : arguments)
    for (const std::string_view flag : {"--device", "--num_gpus", "--num-gpus", "--config"})
      if (argument.starts_with(flag)) return;
  arguments.insert(arguments.begin(), "--devices=cpu:2");
}

}  // namespace belfry::test
