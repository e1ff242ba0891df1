// Elementary functions without branches or calls, which compilers vectorise in a loop.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace mmcv {

struct VectorMath {
  // exp(x) for x <= 0 within 2 ulp; what would be below 1e-38 is about 1e-38. x = n log 2 + r with
  // |r| <= log(2) / 2: exp(r) from its Taylor series, 2^n from the bits of its exponent.
  static float exp(float x) {
    x = std::max(x, -87.0f);
    constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: the sum has no digits after the point
    const float n = (x * 1.44269504f + kRound) - kRound;
    const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float sum = 1.0f / 5040;
    sum = sum * r + 1.0f / 720;
    sum = sum * r + 1.0f / 120;
    sum = sum * r + 1.0f / 24;
    sum = sum * r + 1.0f / 6;
    sum = sum * r + 0.5f;
    sum = sum * r + 1.0f;
    sum = sum * r + 1.0f;
    const int32_t bits = (static_cast<int32_t>(n) + 127) << 23;
    float power;
    std::memcpy(&power, &bits, sizeof(power));
    return sum * power;
  }

  // log(1 + e) for 0 <= e <= 1 within 3 ulp: 2 artanh(s) with s = e / (2 + e) <= 1 / 3.
  static float log1p(float e) {
    const float s = e / (2 + e), square = s * s;
    float sum = 1.0f / 15;
    sum = sum * square + 1.0f / 13;
    sum = sum * square + 1.0f / 11;
    sum = sum * square + 1.0f / 9;
    sum = sum * square + 1.0f / 7;
    sum = sum * square + 1.0f / 5;
    sum = sum * square + 1.0f / 3;
    return 2 * s * (sum * square + 1.0f);
  }
};

}  // namespace mmcv
