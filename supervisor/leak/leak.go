// Package leak judges how a worker's descriptors or memory develop: flat, a plateau, a burst, a staircase or a leak, with
// the slope, the confidence and the time to the limit, and what follows for the worker.
//
// Rules: nothing here reads a clock, starts a goroutine or touches a file; all time comes with the points. Only idle points
// carry a verdict, since what a worker holds while it works says nothing about what it keeps. A verdict depends on the
// points alone and not on when it was asked for. DESIGN.md has the reasons for each number.
package leak

import (
	"math"
	"time"
)

// A Quantity is what the values of a series count. It decides which changes are noise and how much patience growth gets.
type Quantity int

// The quantities.
const (
	Descriptors Quantity = iota
	AnonymousBytes
)

// A Kind is the name of a verdict.
type Kind string

// The verdicts.
const (
	Learning  Kind = "learning"  // too little is known, or it grows and has not grown enough to be called a leak
	Flat      Kind = "flat"      // what it takes it gives back
	Plateau   Kind = "plateau"   // it went up once and stays there
	Burst     Kind = "burst"     // it went up, and came back or may still do so
	Staircase Kind = "staircase" // it grows with each unit of work and keeps what it took
	Leak      Kind = "leak"      // it grows with time and keeps what it took
)

// Grows says whether the verdict is one that ends at the limit.
func (k Kind) Grows() bool { return k == Leak || k == Staircase }

// A Point is one reading. It is idle if the worker had no work in hand since the reading before.
type Point struct {
	Time  time.Time
	Value int64
	Idle  bool
}

// Never is a TimeToLimit that is not foreseen.
const Never = time.Duration(math.MaxInt64)

// A Verdict is what the points of one series amount to.
type Verdict struct {
	Kind        Kind
	Slope       float64       // growth of what is kept, per second; 0 where nothing grows
	Unit        string        // of the values: descriptors or bytes
	PerWork     float64       // of a staircase: growth with each unit of work
	Confidence  float64       // 0 to 1
	TimeToLimit time.Duration // at Slope from the newest value; Never if it does not grow or has no limit
	Span        time.Duration // the stretch of time the verdict rests on
	From, To    int64         // what was kept at its beginning and at its end
	Pace        float64       // the least growth per second over the last three points, busy ones too; 0 unless all three grew
	Evidence    string        // a sentence for a person
}

// Judge gives the verdict over points, oldest first. A limit of 0 or less is none.
func Judge(q Quantity, points []Point, limit int64) Verdict {
	d := NewDetector(q)
	for _, p := range points {
		d.Add(p)
	}
	return d.Verdict(limit)
}

// A profile is what distinguishes the quantities. DESIGN.md has the reasons.
type profile struct {
	unit       string
	least      float64 // growth below this is noise
	relative   float64 // and growth below this part of the value
	quietShare float64 // part of the room that growth without work may take before it is called a leak
	quietMost  float64 // and at most this much
	share      float64 // the same for growth that goes with work
	quietLate  float64 // the same for growth without work that has gone on for patience
	lateShare  float64 // the same for growth with work that has gone on for patience
	rushPoints int     // points in a row that show a rush
	afterWork  float64 // seconds: what grew for less time while there was work may still be given back
	room       float64 // taken for granted where there is no limit
}

const (
	mib = 1 << 20
	gib = 1 << 30
)

var profiles = [...]profile{
	Descriptors: {
		unit: "descriptors", least: 5, relative: 0,
		quietShare: 0.02, quietMost: 50, share: 0.2, quietLate: 0, lateShare: 0.01, rushPoints: 5, room: 1024,
	},
	AnonymousBytes: {
		unit: "bytes", least: 8 * mib, relative: 0.03,
		quietShare: 0.2, quietMost: gib, share: 0.5, quietLate: 0.05, lateShare: 0.1, rushPoints: 15, room: gib,
		afterWork: 15 * 60,
	},
}

const (
	// grace is the time after the first point in which growth may be start-up.
	grace = 15 * time.Minute
	// shortest is the shortest growth that is called a leak, but for a rush.
	shortest = 2 * time.Minute
	// patience is the longest that growth is waited for to be given back: both sides of two days.
	patience = 48 * time.Hour
	// settle is the time after work in which a worker may still give back what the work took.
	settle = 2 * time.Minute
	// rush is the part of the room that is called a leak however quickly it was taken.
	rush = 0.5
	// lasting is the time after which a step is taken to stay.
	lasting = 10 * time.Minute
)
