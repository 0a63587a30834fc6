"""The dashboards of the chart against the types that Grafana publishes for TypeScript.

`pins/` pins the npm package `@grafana/schema` of each major version of Grafana that
docs/dashboards.md promises, and the compiler; `installed` puts them into the cache, `types.ts` says
what of them a dashboard must be, `compiler` has the compiler judge.
"""
