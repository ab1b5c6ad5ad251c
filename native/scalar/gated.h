// One gated activation.
#pragma once

#include <math.h>

#include "elements.h"

namespace inferno::INFERNO_ISA {
namespace {

float sigmoid(float x) { return 1.0f / (1.0f + ::expf(-x)); }

// A bound that lets NaN pass.
float clamped(float x, float least, float most) { return x < least ? least : x > most ? most : x; }

float gated(float gate, float up, const Activation& activation, Type type) {
    if (activation.gate == Gate::silu) {
        return rounded_to(type, gate / (1.0f + ::expf(-gate))) * up;
    }
    const float limit = activation.limit;
    gate = clamped(gate, -__builtin_inff(), limit);
    up = clamped(up, -limit, limit);
    return (up + 1.0f) * gate * sigmoid(activation.alpha * gate);
}

}  // namespace
}  // namespace inferno::INFERNO_ISA
