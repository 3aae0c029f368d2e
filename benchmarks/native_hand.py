"""The programs of `native_programs` as an expert writes them with Numba: the forward pass only.

Scalars in locals, sums in the loop that makes their terms, buffers made once, products as loops of a length
that the compiler knows, or as ``np.dot`` into a buffer where that is faster (the network). No fastmath,
which is wrong around inf and nan.
"""

import math

import numpy as np
from numba import njit

native = njit(error_model="numpy")  # as ours: 1.13 to 0.96 of Python's, which checks each division

HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


@native
def garch(w, a, b, s2, r):
    total = 0.0
    for t in range(r.size):
        r2 = r[t] * r[t]
        total += math.log(2 * np.pi * s2) + r2 / s2
        s2 = w + a * r2 + b * s2
    return -0.5 * total


@native
def ar2(p1, p2, y0, e):
    y2, y1 = y0[0], y0[1]
    total = 0.0
    for t in range(e.size):
        # What the step before has just given comes last: 0.7 of the time without the brackets.
        y1, y2 = p1 * y1 + (p2 * y2 + e[t]), y1
        total += y1 * y1
    return total


@native
def hmm(start, A, mean, y):
    alpha, new, b = np.empty(4), np.empty(4), np.empty(4)
    c, total = 0.0, 0.0
    for j in range(4):
        alpha[j] = start[j] * math.exp(-0.5 * (y[0] - mean[j]) ** 2 - HALF_LOG_2PI)
        c += alpha[j]
    total = math.log(c)
    for j in range(4):
        alpha[j] /= c
    for t in range(1, y.size):
        c = 0.0
        for j in range(4):
            b[j] = math.exp(-0.5 * (y[t] - mean[j]) ** 2 - HALF_LOG_2PI)
        for j in range(4):
            s = 0.0
            for i in range(4):
                s += alpha[i] * A[i, j]
            new[j] = s * b[j]
            c += new[j]
        for j in range(4):
            alpha[j] = new[j] / c
        total += math.log(c)
    return total


@native
def hmm_log(start, A, mean, y):
    alpha, scaled = np.empty(4), np.empty(4)
    for j in range(4):
        alpha[j] = math.log(start[j]) - 0.5 * (y[0] - mean[j]) ** 2 - HALF_LOG_2PI
    for t in range(1, y.size):
        most = max(max(alpha[0], alpha[1]), max(alpha[2], alpha[3]))
        for j in range(4):
            scaled[j] = math.exp(alpha[j] - most)
        for j in range(4):
            s = 0.0
            for i in range(4):
                s += scaled[i] * A[i, j]
            alpha[j] = math.log(s) + most - 0.5 * (y[t] - mean[j]) ** 2 - HALF_LOG_2PI
    most = max(max(alpha[0], alpha[1]), max(alpha[2], alpha[3]))
    s = 0.0
    for j in range(4):
        s += math.exp(alpha[j] - most)
    return math.log(s) + most


@native
def kalman(T, Z, Q, H, a, P, y):
    """As it stands in a book. Each array operation allocates."""
    total = 0.0
    for t in range(y.size):
        v = y[t] - Z @ a
        F = Z @ P @ Z + H
        K = T @ P @ Z / F
        total += np.log(2 * np.pi * F) + v**2 / F
        a = T @ a + K * v
        P = T @ P @ (T - np.outer(K, Z)).T + Q
    return -0.5 * total


@native
def kalman_in_loops(T, Z, Q, H, a_0, P_0, y):
    a, P = a_0.copy(), P_0.copy()
    Ta, PZ, K = np.empty(3), np.empty(3), np.empty(3)
    TP, L = np.empty((3, 3)), np.empty((3, 3))
    total = 0.0
    for t in range(y.size):
        v, F = y[t], H
        for i in range(3):
            PZ[i] = 0.0
            for j in range(3):
                PZ[i] += P[i, j] * Z[j]
            v -= Z[i] * a[i]
            F += Z[i] * PZ[i]
        total += math.log(2 * np.pi * F) + v * v / F
        for i in range(3):
            Ta[i] = K[i] = 0.0
            for j in range(3):
                Ta[i] += T[i, j] * a[j]
                K[i] += T[i, j] * PZ[j]
            K[i] /= F
            for j in range(3):
                L[i, j] = T[i, j] - K[i] * Z[j]
                TP[i, j] = 0.0
                for k in range(3):
                    TP[i, j] += T[i, k] * P[k, j]
        for i in range(3):
            a[i] = Ta[i] + K[i] * v
            for j in range(3):
                P[i, j] = Q[i, j]
                for k in range(3):
                    P[i, j] += TP[i, k] * L[j, k]
    return -0.5 * total


@native
def rnn(x, h0, target, U, W, b):
    # The part of the input at once: one product of 1600 rows is faster than 100 of 16.
    steps, batch, units = x.shape[0], h0.shape[0], h0.shape[1]
    driven = np.dot(x.reshape(steps * batch, x.shape[2]), U)
    h, hW = h0.copy(), np.empty((batch, units))
    for t in range(steps):
        np.dot(h, W, out=hW)
        for i in range(batch):
            for j in range(units):
                h[i, j] = math.tanh(driven[t * batch + i, j] + hW[i, j] + b[j])
    total = 0.0
    for i in range(batch):
        for j in range(units):
            total += (h[i, j] - target[i, j]) ** 2
    return total


@native
def slope(u, v, a, b, c, d):
    return a * u - b * u * v, c * u * v - d * v


@native
def runge_kutta(a, b, c, d, u, v, dt, u_data, v_data):
    total = 0.0
    half, sixth = dt / 2, dt / 6
    for t in range(u_data.size):
        u1, v1 = slope(u, v, a, b, c, d)
        u2, v2 = slope(u + half * u1, v + half * v1, a, b, c, d)
        u3, v3 = slope(u + half * u2, v + half * v2, a, b, c, d)
        u4, v4 = slope(u + dt * u3, v + dt * v3, a, b, c, d)
        u += sixth * (u1 + 2 * u2 + 2 * u3 + u4)
        v += sixth * (v1 + 2 * v2 + 2 * v3 + v4)
        du, dv = u - u_data[t], v - v_data[t]
        total += du * du + dv * dv
    return total


@native
def nested(k, c, z, f, y):
    total = 0.0
    for t in range(f.size):
        ft = f[t]
        for _ in range(20):
            z += 0.05 * (ft - k * z - c * (z * z * z))
        total += (z - y[t]) ** 2
    return total


@native
def newton(m, e):
    E = m
    for _ in range(50):
        new = E - (E - e * math.sin(E) - m) / (1 - e * math.cos(E))
        change = abs(new - E)
        E = new
        if change < 1e-10:
            break
    return E


@native
def newton_many(m, e):
    total = 0.0
    for t in range(m.size):
        total += newton(m[t], e) ** 2
    return total


@native
def newton_data(x, scale, y):
    for _ in range(100):
        first = second = 0.0
        for t in range(y.size):
            z = (y[t] - x) / scale
            z2 = z * z
            w = 1 / (1 + z2)
            first += z * w
            second += (1 - z2) * (w * w)
        change = scale * first / second
        x += change
        if abs(change) < 1e-10:
            break
    return x * x
