// One process of the image, always there: it scales to zero never, since what would wake it (KEDA's scaler of the change
// feed) Container Apps does not have. More replicas share leases or sessions, and come when these are busy.
param name string
param location string
param tags object
param identityId string
param environmentId string
param registryServer string
param image string

@description('What is run in it; none: what the image says.')
param command string[]
param appSettings object


@description('Where it answers probes, and callers, if there are any.')
param port int

@description('Empty: that it listens is enough.')
param livenessPath string
param readinessPath string

@description('Whether it is called from outside.')
param ingress bool

@description('Nothing runs: without a rule nothing starts it again.')
param stopped bool

@minValue(1)
param minimumReplicas int
param maximumReplicas int

resource app 'Microsoft.App/containerApps@2025-07-01' = {
  name: name
  location: location
  tags: tags
  identity: {
    type: 'UserAssigned'
    userAssignedIdentities: {
      '${identityId}': {}
    }
  }
  properties: {
    environmentId: environmentId
    workloadProfileName: 'Consumption'
    configuration: {
      activeRevisionsMode: 'Single'
      ingress: ingress ? { external: true, targetPort: port, transport: 'auto', allowInsecure: false } : null
      registries: [
        {
          server: registryServer
          identity: identityId
        }
      ]
    }
    template: {
      terminationGracePeriodSeconds: 30
      containers: [
        {
          name: 'main'
          image: image
          command: empty(command) ? null : command
          env: map(items(appSettings), setting => { name: setting.key, value: setting.value })
          resources: {
            cpu: json('0.5')
            memory: '1Gi'
          }
          probes: [
            {
              type: 'Startup'
              httpGet: empty(livenessPath) ? null : { path: livenessPath, port: port }
              tcpSocket: empty(livenessPath) ? { port: port } : null
              periodSeconds: 5
              timeoutSeconds: 6
              failureThreshold: 10
            }
            {
              type: 'Liveness'
              httpGet: empty(livenessPath) ? null : { path: livenessPath, port: port }
              tcpSocket: empty(livenessPath) ? { port: port } : null
              periodSeconds: 10
              timeoutSeconds: 6
              failureThreshold: 5
            }
            {
              type: 'Readiness'
              httpGet: {
                path: readinessPath
                port: port
              }
              periodSeconds: 10
              timeoutSeconds: 6
              failureThreshold: 5
            }
          ]
        }
      ]
      scale: {
        minReplicas: stopped ? 0 : minimumReplicas
        maxReplicas: max(minimumReplicas, maximumReplicas)
        rules: stopped ? [] : [
          {
            name: 'busy'
            custom: {
              type: 'cpu'
              metadata: {
                type: 'Utilization'
                value: '70'
              }
            }
          }
        ]
      }
    }
  }
}

output url string = ingress ? 'https://${app.properties.configuration.ingress.fqdn}' : ''
