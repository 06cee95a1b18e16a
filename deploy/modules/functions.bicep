// One function app on Flex Consumption, which takes one app a plan. The runtime is declared in functionAppConfig: Flex
// refuses FUNCTIONS_WORKER_RUNTIME and WEBSITE_RUN_FROM_PACKAGE among the settings.
param name string
param planName string
param location string
param tags object
param identityId string
param packageContainerUrl string
param appSettings object

param disabledFunctions string[]
param alwaysReady object[]
param pythonVersion string
param instanceMemoryMB int
param maximumInstanceCount int
param httpConcurrency int
param zoneRedundant bool
param allowedOrigins array

@description('Empty: nobody signs in.')
param signInClientId string

@description('Paths that ask for no token.')
param openPaths string[]

@description('Empty: no virtual network.')
param subnetId string

var disabledSettings = [for function in disabledFunctions: {
  name: 'AzureWebJobs.${function}.Disabled'
  value: 'true'
}]
var namedSettings = map(items(appSettings), setting => { name: setting.key, value: setting.value })

resource plan 'Microsoft.Web/serverfarms@2024-04-01' = {
  name: planName
  location: location
  tags: tags
  kind: 'functionapp'
  sku: {
    tier: 'FlexConsumption'
    name: 'FC1'
  }
  properties: {
    reserved: true
    zoneRedundant: zoneRedundant
  }
}

resource site 'Microsoft.Web/sites@2024-04-01' = {
  name: name
  location: location
  tags: tags
  kind: 'functionapp,linux'
  identity: {
    type: 'UserAssigned'
    userAssignedIdentities: {
      '${identityId}': {}
    }
  }
  properties: {
    serverFarmId: plan.id
    httpsOnly: true
    keyVaultReferenceIdentity: identityId
    virtualNetworkSubnetId: empty(subnetId) ? null : subnetId
    siteConfig: {
      minTlsVersion: '1.2'
      appSettings: concat(namedSettings, disabledSettings)
      cors: {
        allowedOrigins: allowedOrigins
      }
    }
    functionAppConfig: {
      deployment: {
        storage: {
          type: 'blobContainer'
          value: packageContainerUrl
          authentication: {
            type: 'UserAssignedIdentity'
            userAssignedIdentityResourceId: identityId
          }
        }
      }
      runtime: {
        name: 'python'
        version: pythonVersion
      }
      scaleAndConcurrency: {
        instanceMemoryMB: instanceMemoryMB
        maximumInstanceCount: maximumInstanceCount
        alwaysReady: alwaysReady
        triggers: {
          http: {
            perInstanceConcurrency: httpConcurrency
          }
        }
      }
    }
  }
}

// On as long as there is a client id. What the app is told of the caller then comes from the platform alone.
resource signIn 'Microsoft.Web/sites/config@2024-04-01' = {
  parent: site
  name: 'authsettingsV2'
  properties: {
    platform: {
      enabled: !empty(signInClientId)
    }
    globalValidation: {
      requireAuthentication: !empty(signInClientId)
      unauthenticatedClientAction: 'Return401'
      excludedPaths: openPaths
    }
    identityProviders: empty(signInClientId) ? {} : {
      azureActiveDirectory: {
        enabled: true
        registration: {
          clientId: signInClientId
          openIdIssuer: '${environment().authentication.loginEndpoint}${tenant().tenantId}/v2.0'
        }
        validation: {
          allowedAudiences: [
            signInClientId
            'api://${signInClientId}'
          ]
        }
      }
    }
  }
}

// Code is published with a sign-in, never with a publishing password.
@batchSize(1)
resource noPasswords 'Microsoft.Web/sites/basicPublishingCredentialsPolicies@2024-04-01' = [for endpoint in ['ftp', 'scm']: {
  parent: site
  name: endpoint
  properties: {
    allow: false
  }
}]

output name string = site.name
output url string = 'https://${site.properties.defaultHostName}'
