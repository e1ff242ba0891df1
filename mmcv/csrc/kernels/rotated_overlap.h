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

// Twice the area of a polygon whose corners come one after the other.
template <typename T>
struct PolygonArea {
  Point<T> first{}, previous{};
  T twice = 0;
  bool any = false;

  MMCV_HOST_DEVICE void add(Point<T> corner) {
    if (!any) first = corner;
    any = true;
    twice += (previous.x - first.x) * (corner.y - first.y) -
             (previous.y - first.y) * (corner.x - first.x);
    previous = corner;
  }
  MMCV_HOST_DEVICE void close() {}
};

// Hands on the part of a polygon where sign * (x or y) <= bound. It remembers two corners and no
// polygon, so that a chain of these stays in registers.
template <typename T, typename Next>
struct HalfPlane {
  T sign, bound;
  bool along_x;
  Next& next;
  Point<T> first{}, previous{};
  bool any = false;

  MMCV_HOST_DEVICE T inside_by(Point<T> corner) const {
    return bound - sign * (along_x ? corner.x : corner.y);
  }
  // The edge from the previous corner, without its start.
  MMCV_HOST_DEVICE void add_edge(Point<T> to, bool with_end) {
    const T before = inside_by(previous), after = inside_by(to);
    const bool crosses = (before > 0 && after < 0) || (before < 0 && after > 0);
    const T t = crosses ? before / (before - after) : T(0);
    const Point<T> crossing{previous.x + t * (to.x - previous.x),
                            previous.y + t * (to.y - previous.y)};
    MMCV_NO_UNROLL  // two calls would double the code at every half plane
        for (int k = 0; k < 2; ++k) {
      if (k == 0 ? crosses : with_end && after >= 0) next.add(k == 0 ? crossing : to);
    }
    previous = to;
  }
  MMCV_HOST_DEVICE void add(Point<T> corner) {
    if (!any) first = previous = corner;
    any = true;
    add_edge(corner, true);
  }
  MMCV_HOST_DEVICE void close() {
    if (any) add_edge(first, false);
    next.close();
  }
};

template <typename T>
MMCV_HOST_DEVICE inline T intersection(const T* a, const T* b, T direction) {
  const T cos_b = std::cos(direction * b[4]), sin_b = std::sin(direction * b[4]);
  const T cos_ab = std::cos(direction * (a[4] - b[4])),
          sin_ab = std::sin(direction * (a[4] - b[4]));
  const T dx = a[0] - b[0], dy = a[1] - b[1];
  const Point<T> center{cos_b * dx + sin_b * dy, cos_b * dy - sin_b * dx};
  PolygonArea<T> area;
  HalfPlane<T, decltype(area)> bottom{-1, b[3] / 2, false, area};
  HalfPlane<T, decltype(bottom)> top{1, b[3] / 2, false, bottom};
  HalfPlane<T, decltype(top)> left{-1, b[2] / 2, true, top};
  HalfPlane<T, decltype(left)> right{1, b[2] / 2, true, left};
  MMCV_NO_UNROLL
  for (int i = 0; i < 4; ++i) {
    const T x = (i == 1 || i == 2 ? a[2] : -a[2]) / 2, y = (i < 2 ? -a[3] : a[3]) / 2;
    right.add({center.x + cos_ab * x - sin_ab * y, center.y + sin_ab * x + cos_ab * y});
  }
  right.close();
  return std::abs(area.twice) / 2;
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
