// SPDX-License-Identifier: Apache-2.0

package deploy_test

// The parts of Kubernetes objects that the manifests use, and no others: a field that is not here (hostPID, initContainers,
// serviceAccountName …) is refused, so nobody adds one without a look at these tests.
type (
	meta struct {
		Name        string            `json:"name"`
		Namespace   string            `json:"namespace"`
		Labels      map[string]string `json:"labels"`
		Annotations map[string]string `json:"annotations"`
	}
	workload struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Metadata   meta   `json:"metadata"`
		Spec       struct {
			Replicas       *int           `json:"replicas"`
			Strategy       map[string]any `json:"strategy"`
			UpdateStrategy map[string]any `json:"updateStrategy"`
			Selector       struct {
				MatchLabels map[string]string `json:"matchLabels"`
			} `json:"selector"`
			Template struct {
				Metadata meta    `json:"metadata"`
				Spec     podSpec `json:"spec"`
			} `json:"template"`
		} `json:"spec"`
	}
	podSpec struct {
		HostNetwork                   bool             `json:"hostNetwork"`
		DNSPolicy                     string           `json:"dnsPolicy"`
		AutomountServiceAccountToken  *bool            `json:"automountServiceAccountToken"`
		EnableServiceLinks            *bool            `json:"enableServiceLinks"`
		PriorityClassName             string           `json:"priorityClassName"`
		TerminationGracePeriodSeconds int              `json:"terminationGracePeriodSeconds"`
		Tolerations                   []map[string]any `json:"tolerations"`
		SecurityContext               podSecurity      `json:"securityContext"`
		Containers                    []container      `json:"containers"`
		Volumes                       []volume         `json:"volumes"`
	}
	podSecurity struct {
		RunAsNonRoot   bool              `json:"runAsNonRoot"`
		RunAsUser      *int              `json:"runAsUser"`
		RunAsGroup     *int              `json:"runAsGroup"`
		FSGroup        *int              `json:"fsGroup"`
		SeccompProfile map[string]string `json:"seccompProfile"`
	}
	container struct {
		Name            string            `json:"name"`
		Image           string            `json:"image"`
		ImagePullPolicy string            `json:"imagePullPolicy"`
		Args            []string          `json:"args"`
		Env             []map[string]any  `json:"env"`
		Ports           []port            `json:"ports"`
		LivenessProbe   probe             `json:"livenessProbe"`
		ReadinessProbe  probe             `json:"readinessProbe"`
		SecurityContext containerSecurity `json:"securityContext"`
		Resources       struct {
			Requests map[string]string `json:"requests"`
			Limits   map[string]string `json:"limits"`
		} `json:"resources"`
		VolumeMounts []mount `json:"volumeMounts"`
	}
	containerSecurity struct {
		RunAsUser                *int  `json:"runAsUser"`
		RunAsGroup               *int  `json:"runAsGroup"`
		Privileged               *bool `json:"privileged"`
		AllowPrivilegeEscalation *bool `json:"allowPrivilegeEscalation"`
		ReadOnlyRootFilesystem   bool  `json:"readOnlyRootFilesystem"`
		Capabilities             struct {
			Drop []string `json:"drop"`
			Add  []string `json:"add"`
		} `json:"capabilities"`
	}
	port struct {
		Name          string `json:"name"`
		ContainerPort int    `json:"containerPort"`
		HostPort      int    `json:"hostPort"`
		Protocol      string `json:"protocol"`
	}
	probe struct {
		HTTPGet struct {
			Path string `json:"path"`
			Port string `json:"port"`
		} `json:"httpGet"`
		PeriodSeconds    int `json:"periodSeconds"`
		FailureThreshold int `json:"failureThreshold"`
	}
	mount struct {
		Name      string `json:"name"`
		MountPath string `json:"mountPath"`
		ReadOnly  bool   `json:"readOnly"`
	}
	volume struct {
		Name     string `json:"name"`
		HostPath *struct {
			Path string `json:"path"`
			Type string `json:"type"`
		} `json:"hostPath"`
		Secret *struct {
			SecretName  string `json:"secretName"`
			DefaultMode int    `json:"defaultMode"`
		} `json:"secret"`
		PersistentVolumeClaim *struct {
			ClaimName string `json:"claimName"`
		} `json:"persistentVolumeClaim"`
	}
	service struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Metadata   meta   `json:"metadata"`
		Spec       struct {
			Type     string            `json:"type"`
			Selector map[string]string `json:"selector"`
			Ports    []struct {
				Name       string `json:"name"`
				Port       int    `json:"port"`
				TargetPort string `json:"targetPort"`
				Protocol   string `json:"protocol"`
			} `json:"ports"`
		} `json:"spec"`
	}
	kustomization struct {
		APIVersion string   `json:"apiVersion"`
		Kind       string   `json:"kind"`
		Namespace  string   `json:"namespace"`
		Resources  []string `json:"resources"`
		Images     []struct {
			Name    string `json:"name"`
			NewName string `json:"newName"`
			NewTag  string `json:"newTag"`
		} `json:"images"`
		Patches []struct {
			Path   string            `json:"path"`
			Target map[string]string `json:"target"`
		} `json:"patches"`
	}
	patch struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value string `json:"value"`
	}
)
