#include "belfry/framework/base/end_process.h"

#include <unistd.h>

namespace belfry {

void end_process(int code) { ::_exit(code); }

}  // namespace belfry
