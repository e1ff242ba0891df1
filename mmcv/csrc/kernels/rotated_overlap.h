// Area that two rotated rectangles [cx, cy, w, h, angle] share, for the CPU and the GPU.
//
// The first rectangle is clipped by the four half planes of the second one (Sutherland & Hodgman
// 1974), in the frame of the second one, where those are |x| <= w / 2, |y| <= h / 2. The area of
// the polygon that is left, at most 8 corners, is the intersection. Differences of centres are
// taken before products, so that boxes far from the origin lose no digits.
#pragma once

#include <cmath>

#include "portable.h"

namespace mmcv {

template <typename T>
struct Point {
  T x, y;
};

// Keeps the part of a polygon where sign * (x or y) <= bound; returns its number of corners.
template <typename T>
MMCV_HOST_DEVICE inline int clip(const Point<T>* polygon, int count, bool along_x, T sign, T bound,
                                 Point<T>* result) {
  int kept = 0;
  for (int i = 0; i < count; ++i) {
    const Point<T> from = polygon[i], to = polygon[(i + 1) % count];
    const T before = bound - sign * (along_x ? from.x : from.y);
    const T after = bound - sign * (along_x ? to.x : to.y);
    if (before >= 0) result[kept++] = from;
    if ((before > 0 && after < 0) || (before < 0 && after > 0)) {
      const T t = before / (before - after);
      result[kept++] = {from.x + t * (to.x - from.x), from.y + t * (to.y - from.y)};
    }
  }
  return kept;
}

template <typename T>
MMCV_HOST_DEVICE inline T intersection(const T* a, const T* b, T direction) {
  const T cos_b = std::cos(direction * b[4]), sin_b = std::sin(direction * b[4]);
  const T cos_ab = std::cos(direction * (a[4] - b[4])),
          sin_ab = std::sin(direction * (a[4] - b[4]));
  const T dx = a[0] - b[0], dy = a[1] - b[1];
  const Point<T> center{cos_b * dx + sin_b * dy, cos_b * dy - sin_b * dx};
  Point<T> first[16], second[16];
  const T corner_x[4] = {-1, 1, 1, -1}, corner_y[4] = {-1, -1, 1, 1};
  for (int i = 0; i < 4; ++i) {
    const T x = corner_x[i] * a[2] / 2, y = corner_y[i] * a[3] / 2;
    first[i] = {center.x + cos_ab * x - sin_ab * y, center.y + sin_ab * x + cos_ab * y};
  }
  int count = clip<T>(first, 4, true, 1, b[2] / 2, second);
  count = clip<T>(second, count, true, -1, b[2] / 2, first);
  count = clip<T>(first, count, false, 1, b[3] / 2, second);
  count = clip<T>(second, count, false, -1, b[3] / 2, first);
  T twice = 0;
  for (int i = 1; i + 1 < count; ++i) {
    const T ax = first[i].x - first[0].x, ay = first[i].y - first[0].y;
    const T bx = first[i + 1].x - first[0].x, by = first[i + 1].y - first[0].y;
    twice += ax * by - ay * bx;
  }
  return std::abs(twice) / 2;
}

template <typename T>
MMCV_HOST_DEVICE inline T overlap(const T* a, const T* b, bool iof, T direction) {
  const T area_a = a[2] * a[3], area_b = b[2] * b[3];
  if (!(area_a >= T(1e-14) && area_b >= T(1e-14))) return 0;
  // Circles around the boxes that do not meet: nothing to clip.
  const T dx = a[0] - b[0], dy = a[1] - b[1];
  const T reach = (std::hypot(a[2], a[3]) + std::hypot(b[2], b[3])) / 2;
  if (dx * dx + dy * dy > reach * reach) return 0;
  const T inter = intersection(a, b, direction);
  return inter / (iof ? area_a : area_a + area_b - inter);
}

}  // namespace mmcv
