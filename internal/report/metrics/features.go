package metrics

// Feature is a feature gate.
type Feature struct {
	Name string
	// Stage is ALPHA, BETA, DEPRECATED, or empty for a feature that is generally available.
	Stage string
	On    bool
}

// Features reports the state of the feature gates. It may be called once; names must be unique, and features must
// not change afterwards. The series are made at each scrape: hundreds of permanent metrics would take more memory than
// all others.
func (m *Metrics) Features(features []Feature) {
	collect(m.factory, func() []Feature { return features },
		gaugeVec("kubernetes_feature_enabled",
			"This metric records the data about the stage and enablement of a k8s feature.",
			func(features []Feature, add series) {
				for _, f := range features {
					value := 0.0
					if f.On {
						value = 1
					}
					add(value, f.Name, f.Stage)
				}
			}, "name", "stage"))
}
