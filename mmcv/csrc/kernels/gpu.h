// The only file that knows the vendor. Kernels are written against what it defines; CUDA and HIP
// compile the same sources.
#pragma once

#include <cstdint>

#if defined(__HIP__) || defined(__HIPCC__)

#include <hip/hip_bf16.h>
#include <hip/hip_fp16.h>
#include <hip/hip_runtime.h>

namespace gpu {
using Stream = hipStream_t;
using Half = __half;
using BFloat16 = __hip_bfloat16;
inline const char* last_error() {
  const hipError_t error = hipGetLastError();
  return error == hipSuccess ? nullptr : hipGetErrorString(error);
}
// Lanes of a wave, known when device code is compiled: `warpSize` is no constant in ROCm 7.
#if defined(__GFX9__)
constexpr int kWaveSize = 64;
#else
constexpr int kWaveSize = 32;
#endif
template <typename T>
__device__ inline T shuffle_xor(T value, int mask) {
  return __shfl_xor(value, mask);
}
}  // namespace gpu

#else

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

namespace gpu {
using Stream = cudaStream_t;
using Half = __half;
using BFloat16 = __nv_bfloat16;
inline const char* last_error() {
  const cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}
constexpr int kWaveSize = 32;
// All lanes of the wave must take part.
template <typename T>
__device__ inline T shuffle_xor(T value, int mask) {
  return __shfl_xor_sync(0xffffffffu, value, mask);
}
}  // namespace gpu

#endif

namespace gpu {

// What a type is summed in.
template <typename T>
struct Accumulate {
  using type = float;
};
template <>
struct Accumulate<double> {
  using type = double;
};

__device__ inline float to_float(float x) { return x; }
__device__ inline double to_float(double x) { return x; }
__device__ inline float to_float(Half x) { return __half2float(x); }
__device__ inline float to_float(BFloat16 x) { return __bfloat162float(x); }

template <typename T>
__device__ inline T from_float(typename Accumulate<T>::type x);
template <>
__device__ inline float from_float<float>(float x) {
  return x;
}
template <>
__device__ inline double from_float<double>(double x) {
  return x;
}
template <>
__device__ inline Half from_float<Half>(float x) {
  return __float2half_rn(x);
}
template <>
__device__ inline BFloat16 from_float<BFloat16>(float x) {
  return __float2bfloat16(x);
}

// N neighbouring elements, loaded and stored in one instruction.
template <typename T, int N>
struct alignas(sizeof(T) * N) Vector {
  T element[N];
};

template <typename T, int N>
__device__ inline Vector<T, N> load(const T* __restrict__ pointer) {
  return *reinterpret_cast<const Vector<T, N>*>(pointer);
}

template <typename T, int N>
__device__ inline void store(T* pointer, const Vector<T, N>& vector) {
  *reinterpret_cast<Vector<T, N>*>(pointer) = vector;
}

// Sum over groups of `Lanes` neighbouring lanes (a power of two); every lane gets it. All lanes of
// the wave must take part.
template <int Lanes, typename T>
__device__ inline T group_sum(T value) {
  static_assert(Lanes <= 32, "a group must fit into the smallest wave");
#pragma unroll
  for (int mask = Lanes / 2; mask > 0; mask /= 2) value += shuffle_xor(value, mask);
  return value;
}

// Hardware atomics without a result (HIP: -munsafe-fp-atomics).
__device__ inline void atomic_add(float* target, float value) { atomicAdd(target, value); }
__device__ inline void atomic_add(double* target, double value) { atomicAdd(target, value); }
// Two's complement: adding as unsigned is adding as signed.
__device__ inline void atomic_add(int64_t* target, int64_t value) {
  atomicAdd(reinterpret_cast<unsigned long long*>(target), static_cast<unsigned long long>(value));
}

constexpr int kBlockSize = 256;
constexpr int kMinBlocks = 2;  // a multiprocessor holds at once: with more, large kernels spill
constexpr int64_t kMaxBlocks =
    1 << 20;  // kernels loop over what a grid of this size does not cover

inline unsigned blocks_for(int64_t threads) {
  const int64_t blocks = (threads + kBlockSize - 1) / kBlockSize;
  return static_cast<unsigned>(blocks < kMaxBlocks ? blocks : kMaxBlocks);
}

}  // namespace gpu
