// Recurrences by plain loops in f64, one row after another: the reference.
#pragma once
#include "belfry/ops/recurrent/recurrence_impl.h"

namespace belfry::kernels {

template <class T>
void plain_lstm(const Sequences& s, const Lengths& lengths, const KernelPointers& p);
template <class T>
void plain_lstm_grad(const Sequences& s, const Lengths& lengths, const KernelPointers& p);
template <class T>
void plain_gru(const Sequences& s, const Lengths& lengths, const KernelPointers& p);
template <class T>
void plain_gru_grad(const Sequences& s, const Lengths& lengths, const KernelPointers& p);

}  // namespace belfry::kernels
