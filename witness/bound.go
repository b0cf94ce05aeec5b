// SPDX-License-Identifier: Apache-2.0

package witness

import "math"

// confidence of LossBound, one-sided.
const confidence = 0.95

// LossBound is the loss rate, from 0 to 1, that sent requests of which failed
// failed rule out with 95 % confidence: the one-sided upper Clopper-Pearson
// bound. 0 of 40 only shows that less than 7.2 % are lost. Nothing sent rules
// out nothing: 1.
func LossBound(failed, sent uint64) float64 {
	switch {
	case failed >= sent:
		return 1
	case failed == 0:
		return -math.Expm1(math.Log1p(-confidence) / float64(sent))
	}
	// P(at most failed losses) falls as the rate rises; it is 1-confidence at the bound.
	k, n := float64(failed), float64(sent)
	low, high := k/n, 1.0
	for range 200 {
		middle := low + (high-low)/2
		if middle <= low || middle >= high {
			break
		}
		if 1-regularizedBeta(middle, k+1, n-k) > 1-confidence {
			low = middle
		} else {
			high = middle
		}
	}
	return high
}

// regularizedBeta is I_x(a, b), the probability of at least a losses among
// a+b-1 requests at loss rate x (Abramowitz and Stegun 26.5.24), by the
// continued fraction 26.5.8.
func regularizedBeta(x, a, b float64) float64 {
	if x <= 0 || x >= 1 {
		return min(max(x, 0), 1)
	}
	ab, _ := math.Lgamma(a + b)
	la, _ := math.Lgamma(a)
	lb, _ := math.Lgamma(b)
	front := math.Exp(ab - la - lb + a*math.Log(x) + b*math.Log1p(-x))
	if x < (a+1)/(a+b+2) { // where the fraction converges fast
		return front * betaFraction(x, a, b) / a
	}
	return 1 - front*betaFraction(1-x, b, a)/b
}

// betaFraction evaluates the continued fraction by Lentz's method. About
// sqrt(max(a, b)) steps are needed.
func betaFraction(x, a, b float64) float64 {
	const tiny, precision, steps = 1e-300, 1e-15, 1_000_000
	off := func(v float64) float64 {
		if math.Abs(v) < tiny {
			return tiny
		}
		return v
	}
	c, d := 1.0, 1/off(1-(a+b)*x/(a+1))
	h := d
	for m := 1.0; m <= steps; m++ {
		even := m * (b - m) * x / ((a + 2*m - 1) * (a + 2*m))
		d, c = 1/off(1+even*d), off(1+even/c)
		h *= d * c
		odd := -(a + m) * (a + b + m) * x / ((a + 2*m) * (a + 2*m + 1))
		d, c = 1/off(1+odd*d), off(1+odd/c)
		h *= d * c
		if math.Abs(d*c-1) < precision {
			break
		}
	}
	return h
}
