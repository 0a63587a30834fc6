"""The Grafana dashboards of Quorate: classic JSON of Grafana 10, which later versions read too."""
