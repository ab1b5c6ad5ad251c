// A level that was left out of this build.
#include "kernels.h"

namespace inferno::INFERNO_LEVEL {

const Kernels* table() { return nullptr; }

}  // namespace inferno::INFERNO_LEVEL
